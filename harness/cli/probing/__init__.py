"""``joulefleet probing``: what early exit saves, predicted, measured and replayed."""
