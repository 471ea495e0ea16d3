"""Checkpoints that a gang saves in shards: one folder a node, all of them one checkpoint or none.

    <step>-<fence>/all-nodes, …          node 0's folder; the marker goes first and calls the other nodes
                   node-<k>/…            node k's folder, uploaded when called, or at the end of its ranks
                   parts/<k>.json        node k's part: its files with sizes and sha256, once they are read back
                   restores/<fence>/<k>  what node k of a later attempt found when it verified its share of a restore
                   manifest.json         by node 0, once every part is there and every file is read back: all the files

The call makes the nodes agree on a step when saves come faster than uploads; without it each could choose another one,
for ever. A restore is agreed on too: a damaged shard is seen by one node, and all have to fall back with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from pathlib import Path, PurePosixPath

import obstore
from obstore.store import ObjectStore

from training.node.saved import SavedInvalid
from training.protocol.bucket import CheckpointInvalid, checkpoint_prefix, read_manifest
from training.protocol.manifest import Manifest, ManifestFile
from training.protocol.rank_contract import ALL_NODES

MAX_WAITING_SAVES = 3
"""Node 0 gives up a step whose parts do not come when so many newer saves wait behind it: the disk is not endless."""
VERIFIED = b"verified"
DAMAGED = b"damaged"
_RESERVED = re.compile(r"^(node-\d+|parts|restores)(/|$)")
_SHARD = re.compile(r"^node-(?P<node>\d{1,6})/(?P<place>.+)$")
_PART = re.compile(r"^parts/(?P<node>\d{1,6})\.json$")


class PartsMissing(Exception):
    """Some nodes have not delivered their parts yet; says which."""


def has_marker(folder: Path) -> bool:
    """Whether a saved folder is one node's share of a checkpoint of all nodes."""
    return (folder / ALL_NODES).is_file()


def is_of_all_nodes(manifest: Manifest) -> bool:
    """Whether the checkpoint is one that all nodes saved together."""
    return any(file.path == ALL_NODES for file in manifest.files)


def is_called(bucket: ObjectStore, job_id: str, step: int, fence: int) -> bool:
    """Whether node 0 has begun this step. Errors: BUCKET_ERRORS."""
    try:
        obstore.head(bucket, f"{checkpoint_prefix(job_id, step, fence)}/{ALL_NODES}")
    except FileNotFoundError:
        return False
    return True


def choose_for_gang(pending: Set[int], waiting: int | None, *, is_draining: bool) -> tuple[int | None, frozenset[int]]:
    """The step node 0 works on, and the older ones that it makes superfluous.

    `waiting` is the step that the other nodes were called for. It is kept while it is pending, so that slow uploads end,
    until MAX_WAITING_SAVES newer ones wait; in a drain the newest save is all that counts.
    """
    if not pending:
        return None, frozenset()
    chosen = max(pending)
    if waiting is not None and waiting in pending and not is_draining:
        num_newer = sum(step > waiting for step in pending)
        chosen = waiting if num_newer < MAX_WAITING_SAVES else chosen
    return chosen, frozenset(step for step in pending if step < chosen)


def check_share(manifest: Manifest) -> None:
    """Errors: SavedInvalid when a file of node 0 has a name that the other nodes' files need."""
    for file in manifest.files:
        if _RESERVED.match(file.path):
            raise SavedInvalid(f"{file.path}: beside {ALL_NODES}, node-*, parts and restores are reserved names")


def build_part(manifest: Manifest, node: int) -> Manifest:
    """Node `node`'s share with its files where they lie in the bucket. Errors: SavedInvalid."""
    try:
        files = tuple(_moved(file, f"{node_folder(node)}/{file.path}") for file in manifest.files)
    except ValueError as error:
        raise SavedInvalid("a file's path is too long") from error
    return manifest.model_copy(update={"files": files})


def node_folder(node: int) -> str:
    return f"node-{node}"


def part_name(node: int) -> str:
    return f"parts/{node}.json"


def merge_parts(bucket: ObjectStore, job_id: str, manifest: Manifest, num_nodes: int) -> Manifest:
    """Node 0's manifest with the files of every part, ordered by path, so that a repeat gives the same bytes.

    Errors: PartsMissing, CheckpointInvalid, SavedInvalid when they are too many files, BUCKET_ERRORS.
    """
    step, fence = manifest.step, manifest.fence
    names = _list_names(bucket, checkpoint_prefix(job_id, step, fence), "parts")
    found = {int(match["node"]) for name in names if (match := _PART.match(name))}
    if missing := sorted(set(range(1, num_nodes)) - found):
        raise PartsMissing(f"nodes {', '.join(map(str, missing))}" if len(missing) > 1 else f"node {missing[0]}")
    files = list(manifest.files)
    for node in range(1, num_nodes):
        files += _read_part(bucket, job_id, manifest, node).files
    merged = {**manifest.model_dump(), "files": sorted((file.model_dump() for file in files), key=lambda f: f["path"])}
    try:
        return Manifest.model_validate(merged)
    except ValueError as error:
        raise SavedInvalid(f"{len(files)} files are too many") from error


def _read_part(bucket: ObjectStore, job_id: str, manifest: Manifest, node: int) -> Manifest:
    name = part_name(node)
    answer = read_manifest(bucket, job_id, manifest.step, manifest.fence, name)
    if answer is None:
        raise PartsMissing(f"node {node}")
    part = answer[0]
    if (part.step, part.fence) != (manifest.step, manifest.fence):
        raise CheckpointInvalid(f"{name}: is of step {part.step}, fence {part.fence}")
    if not part.files or any(not file.path.startswith(f"{node_folder(node)}/") for file in part.files):
        raise CheckpointInvalid(f"{name}: names no files, or another node's")
    return part


def place_files(manifest: Manifest, node: int, num_nodes: int) -> dict[str, ManifestFile]:
    """What node `node` of `num_nodes` restores, by its path in the resume folder.

    Of a checkpoint that as many nodes saved: node 0's files, and the node's own at the root, where it saved them; its own
    win where a name meets a name or a folder. With another number of nodes everything, where it lies: the user's code decides.
    """
    shards = {file.path: match for file in manifest.files if (match := _SHARD.match(file.path))}
    saved_by = 1 + len({match["node"] for match in shards.values()})
    if not is_of_all_nodes(manifest) or saved_by != num_nodes:
        return {file.path: file for file in manifest.files}
    common = {file.path: file for file in manifest.files if file.path not in shards}
    own = {
        shards[file.path]["place"]: file
        for file in manifest.files
        if file.path in shards and int(shards[file.path]["node"]) == node
    }
    folders = {str(parent) for place in own for parent in PurePosixPath(place).parents}
    hidden = {path for path in common if path in folders or any(str(up) in own for up in PurePosixPath(path).parents)}
    return {path: file for path, file in common.items() if path not in hidden} | own


def describe_placed(manifest: Manifest, placed: dict[str, ManifestFile]) -> Manifest:
    """The manifest of the resume folder itself, so that whoever verifies that folder finds what it says."""
    return manifest.model_copy(update={"files": tuple(_moved(file, place) for place, file in placed.items())})


def check_presence(bucket: ObjectStore, prefix: str, files: Iterable[ManifestFile]) -> None:
    """Errors: CheckpointInvalid when a file is missing or has another size, BUCKET_ERRORS."""
    for file in files:
        try:
            size_bytes = obstore.head(bucket, f"{prefix}/{file.path}")["size"]
        except FileNotFoundError as error:
            raise CheckpointInvalid(f"{file.path}: missing") from error
        if size_bytes != file.size_bytes:
            raise CheckpointInvalid(f"{file.path}: {size_bytes} bytes instead of {file.size_bytes}")


def tell_verdict(bucket: ObjectStore, folder: str, node: int, *, is_usable: bool) -> None:
    """Say to the other nodes whether this one's share verified. Errors: BUCKET_ERRORS."""
    obstore.put(bucket, f"{folder}/{node}", VERIFIED if is_usable else DAMAGED)


def read_verdicts(bucket: ObjectStore, folder: str, num_nodes: int) -> dict[int, bool]:
    """Whether the share is usable, by node, of those that have said so. Errors: BUCKET_ERRORS."""
    verdicts: dict[int, bool] = {}
    for node in range(num_nodes):
        try:
            verdicts[node] = bytes(obstore.get(bucket, f"{folder}/{node}").bytes()) == VERIFIED
        except FileNotFoundError:
            continue
    return verdicts


def verdicts_folder(job_id: str, step: int, fence: int, resuming_fence: int) -> str:
    return f"{checkpoint_prefix(job_id, step, fence)}/restores/{resuming_fence}"


def _list_names(bucket: ObjectStore, prefix: str, folder: str) -> list[str]:
    batches = obstore.list(bucket, f"{prefix}/{folder}/")
    return [entry["path"].removeprefix(f"{prefix}/") for batch in batches for entry in batch]


def _moved(file: ManifestFile, path: str) -> ManifestFile:
    return ManifestFile(path=path, size_bytes=file.size_bytes, sha256=file.sha256)
