"""Packs the tree of an installation as a wheel for pip and uv.

    packaging/wheel.py VERSION TREE FOLDER

packaging/files describes TREE. Commands become scripts of the environment; libraries, programs that
commands start, and manual pages are its data. pip and uv install data where the commands look for
it: `../lib/pillion` relative to the folder of the scripts. The wheel contains no Python.
"""

import base64
import hashlib
import os
import sys
import time
import zipfile
from pathlib import Path

# The system's folders that a wheel has, and their places in the wheel.
PLACES = {"usr/bin": "scripts", "usr/lib/pillion": "data/lib/pillion", "usr/share/man": "data/share/man"}

METADATA = """\
Metadata-Version: 2.4
Name: pillion
Version: {version}
Summary: Several CUDA jobs share one NVIDIA GPU without hurting the job that matters
License-Expression: MIT OR Apache-2.0
License-File: LICENSE-MIT
License-File: LICENSE-APACHE
License-File: crates.txt.gz
Classifier: Environment :: GPU :: NVIDIA CUDA
Classifier: Operating System :: POSIX :: Linux
Description-Content-Type: text/markdown

{readme}"""

WHEEL = """\
Wheel-Version: 1.0
Generator: pillion packaging/wheel.py
Root-Is-Purelib: false
{tags}"""


class Wheel:
    """A zip file, and a record of its contents."""

    def __init__(self, path):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.date = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
        self.record = []

    def add(self, name, data, mode=0o644, is_recorded=True):
        entry = zipfile.ZipInfo(name, self.date)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o100000 | mode) << 16
        self.zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}" if is_recorded else f"{name},,")

    def close(self, name):
        text = "\n".join([*self.record, f"{name},,", ""])
        self.add(name, text.encode(), is_recorded=False)
        self.zip.close()


def main():
    version, tree, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    # The second is the older name of the same platform, for pip before 20.3.
    tags = ["manylinux_2_17_x86_64", "manylinux2014_x86_64"]
    wheel = Wheel(folder / f"pillion-{version}-py3-none-{'.'.join(tags)}.whl")
    for source, place in PLACES.items():
        for path in sorted((tree / source).rglob("*")):
            if path.is_file():
                name = f"pillion-{version}.data/{place}/{path.relative_to(tree / source)}"
                wheel.add(name, path.read_bytes(), path.stat().st_mode & 0o777)
    info = f"pillion-{version}.dist-info"
    for path in [Path("LICENSE-MIT"), Path("LICENSE-APACHE"), tree / "usr/share/doc/pillion/crates.txt.gz"]:
        wheel.add(f"{info}/licenses/{path.name}", path.read_bytes())
    wheel.add(f"{info}/METADATA", METADATA.format(version=version, readme=Path("README.md").read_text()).encode())
    wheel.add(f"{info}/WHEEL", WHEEL.format(tags="".join(f"Tag: py3-none-{tag}\n" for tag in tags)).encode())
    wheel.close(f"{info}/RECORD")


main()
