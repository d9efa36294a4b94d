"""Everything about tables: reading them, the prior, the model and its predictors."""
