"""What one would pick instead: models of equal size that learn the same text for equally many minutes."""
