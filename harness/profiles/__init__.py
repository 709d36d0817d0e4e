"""Device profiles: built from captures, listed, exchanged, scaled to what was not measured."""
