"""Power instruments: speak to them, store what they say, integrate energy and state its uncertainty."""
