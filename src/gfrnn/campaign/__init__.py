"""Many runs towards one answer: what they are, how far they are, and training what is missing."""
