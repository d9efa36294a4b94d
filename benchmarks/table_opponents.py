"""scikit-learn's methods that `tables.py` compares learners of tables with."""

from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC, SVR


def opponents(shots: int) -> dict[str, Any]:
    """Of classes, for so many examples of each."""
    folds = min(shots, 5)
    grid = {"C": [0.1, 1, 10, 100], "gamma": ["scale", 0.01, 0.1]}
    return {
        "logistic regression": LogisticRegressionCV(
            Cs=10, cv=folds, max_iter=500, use_legacy_attributes=False
        ),
        "LDA": LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
        "Gaussian process": GaussianProcessClassifier(ConstantKernel(1.0) * RBF(3.0)),
        "k-NN": KNeighborsClassifier(min(shots, 5)),
        "random forest": RandomForestClassifier(200, random_state=0),
        "gradient boosting": GradientBoostingClassifier(n_estimators=50, random_state=0),
        # Its kernel and penalty by inner cross-validation; it gives no probabilities.
        "SVM, tuned": GridSearchCV(SVC(random_state=0), grid, cv=folds),
    }


def regressors() -> dict[str, Any]:
    """Of numbers."""
    kernel = ConstantKernel(1.0) * RBF(3.0) + WhiteKernel(0.1)
    grid = {"C": [0.1, 1, 10, 100], "gamma": ["scale", 0.01, 0.1]}
    error = "neg_mean_squared_error"
    return {
        "ridge": RidgeCV(np.logspace(-3, 3, 13)),
        "Gaussian process": GaussianProcessRegressor(kernel, normalize_y=True),
        "random forest": RandomForestRegressor(200, random_state=0),
        "gradient boosting": GradientBoostingRegressor(n_estimators=50, random_state=0),
        "SVM, tuned": GridSearchCV(SVR(), grid, scoring=error, cv=5),
    }
