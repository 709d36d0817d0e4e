"""What a stored run says: its state, tables, findings; long recordings decimated."""
