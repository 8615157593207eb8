"""Statistics of evaluations: intervals, paired comparisons, estimators over samples, power, equal compute."""
