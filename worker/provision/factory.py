"""Which provisioner the settings ask for."""

from __future__ import annotations

from service.settings import Settings
from worker.provision.local.provisioner import LocalProvisioner
from worker.provision.protocol import Provisioner


def make_provisioner(settings: Settings) -> Provisioner:
    """Connects to nothing until it is used."""
    return LocalProvisioner(settings.data_dir / "cloud")
