"""scikit-learn estimators, where users import them from; they need the extra `sklearn`."""

from hubbub.learning.sklearn.classifier import FederatedClassifier
from hubbub.learning.sklearn.counts import FederatedPoissonRegressor
from hubbub.learning.sklearn.regressor import FederatedRegressor
from hubbub.learning.sklearn.survival_estimator import FederatedSurvival

__all__ = [
    "FederatedClassifier",
    "FederatedPoissonRegressor",
    "FederatedRegressor",
    "FederatedSurvival",
]
