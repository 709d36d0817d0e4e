"""What selectors share: draws, estimates from reports, checks of options."""
