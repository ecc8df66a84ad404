"""AutoGluon on one table, in an environment of its own without torch, as flaml_one.py.

python autogluon_one.py train.csv test.csv target domain metric seconds answer.csv
"""

import json
import sys
import tempfile
import time

import pandas as pd
from autogluon.tabular import TabularPredictor

METRICS = {"auroc": "roc_auc", "log-loss": "log_loss", "rmse": "rmse"}
DOMAINS = {"binary": "binary", "multiclass": "multiclass", "regression": "regression"}


def main():
    train, test, target, domain, metric, seconds, out = sys.argv[1:]
    began = time.monotonic()
    rows, asked = pd.read_csv(train), pd.read_csv(test).drop(columns=target)
    with tempfile.TemporaryDirectory() as folder:
        predictor = TabularPredictor(
            label=target,
            problem_type=DOMAINS[domain],
            eval_metric=METRICS[metric],
            path=folder,
            verbosity=0,
        )
        # dynamic stacking spends a part of the time on finding out whether to stack
        predictor.fit(
            rows, time_limit=float(seconds), presets="best_quality", num_cpus=2, num_gpus=0
        )
        fitted = time.monotonic()
        if domain == "regression":
            answer = pd.DataFrame({"prediction": predictor.predict(asked)})
        else:
            answer = predictor.predict_proba(asked)
            answer.columns = [str(one) for one in answer.columns]
        answer.to_csv(out, index=False)
        print(json.dumps({"fit_s": fitted - began, "best": predictor.model_best}))


main()
