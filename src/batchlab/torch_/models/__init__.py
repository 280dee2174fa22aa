"""The models of the recipes, written to be read, copied and modified."""

from batchlab.torch_.models.decoder import Decoder
from batchlab.torch_.models.ladder import LadderLM
from batchlab.torch_.models.loss import next_token_loss
from batchlab.torch_.models.post_norm import PostNormDecoder

__all__ = ["Decoder", "LadderLM", "PostNormDecoder", "next_token_loss"]
