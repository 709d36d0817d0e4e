"""joulefleet's client selectors, costs and accounting as a strategy of the Flower framework."""
