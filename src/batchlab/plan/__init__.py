"""What to train with: the plan, how it is derived from findings, and how other trainers spell it."""

from batchlab.plan.derivation import make_plan
from batchlab.plan.spellings import Format, format_plan, plan_notes
from batchlab.plan.training_plan import TrainingPlan, paste_block

__all__ = ["Format", "TrainingPlan", "format_plan", "make_plan", "paste_block", "plan_notes"]
