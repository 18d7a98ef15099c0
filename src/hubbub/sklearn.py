"""scikit-learn estimators, where users import them from; they need the extra `sklearn`."""

from hubbub.learning.sklearn.estimators import (
    FederatedClassifier,
    FederatedPoissonRegressor,
    FederatedRegressor,
    FederatedSurvival,
)

__all__ = [
    "FederatedClassifier",
    "FederatedPoissonRegressor",
    "FederatedRegressor",
    "FederatedSurvival",
]
