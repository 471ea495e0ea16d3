"""A spec file and a command's options as one checked job spec, and the folder that goes with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from service.cli.errors import BadInput
from service.cli.spec.explain import explain
from service.cli.spec.overrides import apply_overrides
from service.cli.spec.yaml_file import read_mapping
from training.protocol.job_spec import JobSpec

ReadSecret = Callable[[str], str]
_NO_BUNDLE_YET = "0" * 64


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecOptions:
    name: str | None = None
    budget_usd: str | None = None
    overrides: tuple[str, ...] = ()
    secret_names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class DraftSpec:
    """`spec.workdir` is the digest of nothing as long as `folder` waits to be uploaded."""

    spec: JobSpec
    folder: Path | None


def draft_spec(path: str, options: SpecOptions, read_secret: ReadSecret) -> DraftSpec:
    """Errors: BadInput, one entry a wrong field."""
    fields = apply_overrides(read_mapping(path), list(options.overrides))
    if options.name is not None:
        fields["name"] = options.name
    if options.budget_usd is not None:
        fields["budget"] = {"cap_usd": options.budget_usd}
    fields = _with_secrets(fields, options.secret_names, read_secret)
    folder = _folder_of(fields, path)
    if folder is not None:
        fields["workdir"] = _NO_BUNDLE_YET
    return DraftSpec(spec=validate_spec(fields, path), folder=folder)


def validate_spec(fields: dict[str, object], source: str) -> JobSpec:
    try:
        return JobSpec.model_validate(fields)
    except ValidationError as error:
        raise BadInput(f"{source} is not a valid job spec", errors=explain(error)) from None


def with_bundle(spec: JobSpec, sha256: str) -> JobSpec:
    return spec.model_copy(update={"workdir": sha256})


def to_body(spec: JobSpec) -> dict[str, object]:
    """What is sent: only what the user set, and secrets in clear (to the service alone)."""
    body = spec.model_dump(mode="json", exclude_unset=True)
    if spec.secrets:
        body["secrets"] = {name: secret.get_secret_value() for name, secret in spec.secrets.items()}
    return body


def _with_secrets(fields: dict[str, object], names: tuple[str, ...], read_secret: ReadSecret) -> dict[str, object]:
    """`secrets:` may be a list of names, like `--secret`: their values come from the environment or a prompt."""
    given = fields.get("secrets")
    if isinstance(given, list):
        names = (*(str(name) for name in given), *names)
        given = {}
    if not names:
        return fields
    if given is not None and not isinstance(given, dict):
        raise BadInput("secrets: neither a list of names nor a mapping", remedy="write secrets: [HF_TOKEN]")
    return fields | {"secrets": {**(given or {}), **{name: read_secret(name) for name in names}}}


def _folder_of(fields: dict[str, object], source: str) -> Path | None:
    workdir = fields.get("workdir")
    if workdir is None or (isinstance(workdir, str) and _is_digest(workdir)):
        return None
    if not isinstance(workdir, str) or not workdir:
        raise BadInput("workdir: not the name of a folder", remedy="write workdir: . for the spec file's own folder")
    base = Path.cwd() if source == "-" else Path(source).parent
    return base / Path(workdir).expanduser()


def _is_digest(text: str) -> bool:
    return len(text) == 64 and all(character in "0123456789abcdef" for character in text)
