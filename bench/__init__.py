"""What Tailrace does per second, beside what the same machine could do at most: `python -m bench`."""
