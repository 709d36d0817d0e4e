"""The paper's table and figures as lists of emulations, and what is read off them."""
