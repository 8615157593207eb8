"""A model that servers host."""

import msgspec

from ..protocol import ModelInfo
from .dialect import Dialect
from .served_tokenizer import UNTOLD_VOCABULARY
from .servers import Servers


class RemoteModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model as its servers serve it: under the name `served`."""

    info: ModelInfo
    served: str
    servers: Servers
    dialect: Dialect

    @property
    def constrains(self) -> bool:
        """Whether its text can be kept to a grammar: that takes its vocabulary, here."""
        return self.dialect.constrains and self.info.vocab_size != UNTOLD_VOCABULARY
