"""What stopping after the first epoch saves: the same round with and without early exit, counted plainly."""
