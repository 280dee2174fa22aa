"""The Hugging Face Trainer, and TRL's, whose Trainers are derived from it; a callback for those who only observe."""

from batchlab.integrations.hf.callback import BatchlabCallback

__all__ = ["BatchlabCallback"]
