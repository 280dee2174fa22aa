"""`python -m batchlab.plan`: the JSON Schema of training_plan.json, as it is published in docs/."""

import json

from batchlab.plan import TrainingPlan

if __name__ == "__main__":
    print(json.dumps(TrainingPlan.model_json_schema(), indent=1))
