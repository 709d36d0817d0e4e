"""Changes the code at random places and asks whether a test notices: `make mutate`."""
