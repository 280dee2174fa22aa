"""A LightningModule in lightning.Trainer, and a drop-in for Lightning's BatchSizeFinder."""

from batchlab.integrations.lightning.batch_size_finder import BatchSizeFinder

__all__ = ["BatchSizeFinder"]
