"""FLAML on one table, in an environment of its own: fits for so long, writes what it foretells.

python flaml_one.py train.csv test.csv target domain metric seconds answer.csv
"""

import json
import sys
import time

import numpy as np
import pandas as pd
from flaml import AutoML

METRICS = {"auroc": "roc_auc", "log-loss": "log_loss", "rmse": "rmse"}


def main():
    train, test, target, domain, metric, seconds, out = sys.argv[1:]
    began = time.monotonic()
    rows, asked = pd.read_csv(train), pd.read_csv(test).drop(columns=target)
    automl = AutoML()
    automl.fit(
        dataframe=rows,
        label=target,
        task="regression" if domain == "regression" else "classification",
        metric=METRICS[metric],
        time_budget=float(seconds),
        n_jobs=2,
        seed=0,
        verbose=0,
    )
    fitted = time.monotonic()
    if domain == "regression":
        answer = pd.DataFrame({"prediction": np.asarray(automl.predict(asked))})
    else:
        names = [str(one) for one in automl.classes_]
        answer = pd.DataFrame(np.asarray(automl.predict_proba(asked)), columns=names)
    answer.to_csv(out, index=False)
    print(json.dumps({"fit_s": fitted - began, "best": str(automl.best_estimator)}))


main()
