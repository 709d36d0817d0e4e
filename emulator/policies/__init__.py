"""Pretrained policies of the learning selectors: where they lie, how they are made, what they rest on."""
