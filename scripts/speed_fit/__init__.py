"""Fitting and validating the speed model; see scripts/fit_constants and validate_predictor."""
