"""A model in the forms that peers read, each made once and kept in a folder."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT

import anyio
import anyio.to_thread

from .peer_process import PeerFailed


def default_work() -> Path:
    """Where forms are kept unless told otherwise."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "branchwise" / "bench"


class PeerModels:
    """The forms of one model `source` (a transformers folder or a `.gguf` file), below the folder `work`.

    All have the same weights: a GGUF file in bfloat16 (llama.cpp) and an OpenVINO folder with fp16 weights
    are made of a transformers folder.
    """

    def __init__(self, source: Path, work: Path) -> None:
        self._source = source
        self._folder = work / f"{source.stem}-{_fingerprint(source)}"

    @property
    def logs(self) -> Path:
        """Where what peers print about this model goes."""
        return self._folder / "logs"

    async def transformers(self) -> Path:
        """A transformers folder."""
        if self._source.is_dir():
            return self._source

        def make(target: Path) -> None:
            from ...engine.models.gguf import to_transformers

            to_transformers(self._source, target)

        return await self._made("transformers", make)

    async def gguf(self) -> Path:
        """A GGUF file in bfloat16, without a vocabulary."""
        folder = await self.transformers()

        def make(target: Path) -> None:
            from .gguf_file import write_gguf

            write_gguf(folder, target)

        return await self._made("model.bf16.gguf", make)

    async def openvino(self, python: Path) -> Path:
        """An OpenVINO folder, exported by optimum from the environment of `python`."""
        folder = await self.transformers()
        made = self._folder / "openvino"
        if made.exists():
            return made
        with self._making() as making:
            await _export_openvino(python, folder, making / "openvino")
            shutil.move(making / "openvino", made)
        return made

    async def scorer(self) -> Path:
        """A step scorer of the model's size with other weights, for the engine."""
        folder = await self.transformers()

        def make(target: Path) -> None:
            from .scorer_model import write_scorer

            write_scorer(folder, target)

        return await self._made("scorer", make)

    async def _made(self, name: str, make: Callable[[Path], None]) -> Path:
        """The file or folder `name`; a half-made one never stands under its name."""
        made = self._folder / name
        if not made.exists():
            with self._making() as making:
                await anyio.to_thread.run_sync(make, making / name)
                shutil.move(making / name, made)
        return made

    @contextmanager
    def _making(self) -> Iterator[Path]:
        """A folder for what is not complete yet."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder, prefix="making-") as folder:
            yield Path(folder)


async def _export_openvino(python: Path, folder: Path, target: Path) -> None:
    tool = python.parent / "optimum-cli"
    options = ["--task", "text-generation-with-past", "--weight-format", "fp16"]
    command = [str(tool), "export", "openvino", "--model", str(folder), *options, str(target)]
    try:
        done = await anyio.run_process(command, check=False, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT)
    except OSError as error:
        raise PeerFailed(
            f"peer openvino: {tool} does not start ({error.strerror}); it exports the model: "
            'install "optimum-intel[openvino]" beside openvino-genai'
        ) from None
    if done.returncode or not (target / "openvino_model.xml").is_file():
        lines = done.stdout.decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        raise PeerFailed(f"peer openvino: {tool} did not export {folder} (status {done.returncode}: {said})")


def _fingerprint(source: Path) -> str:
    """Tells models of one name apart, by place, size and time of their files."""
    files = sorted(source.iterdir()) if source.is_dir() else [source]
    facts = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return blake2b(repr(facts).encode(), digest_size=6).hexdigest()
