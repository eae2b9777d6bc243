"""Speed and memory on this machine, side by side with what one would use otherwise; `gfrnn bench` is its command."""
