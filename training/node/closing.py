"""The end of a node's work: what the ranks saved, the outputs and the log go to the bucket."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from training.node.bucket_access import BUCKET_ERRORS, BucketAccess
from training.node.layout import Layout
from training.node.outputs import OutputsTooLarge, find_outputs, upload_log, upload_outputs
from training.node.uploads import Uploader
from training.protocol.launch_spec import LaunchSpec

RETRY_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Closing:
    """`stopped` ends every retry."""

    spec: LaunchSpec
    layout: Layout
    bucket: BucketAccess
    uploader: Uploader
    stopped: threading.Event
    tell: Callable[[str], None]

    def close(self, timeout_seconds: float, *, has_saves: bool, has_outputs: bool) -> bool:
        """True when everything asked for is in the bucket; the log alone may be missing."""
        is_complete = True
        if has_saves:
            is_complete = self.uploader.flush(timeout_seconds)
            if not is_complete:
                self.tell("the last checkpoint could not be uploaded and registered in time")
        if has_outputs:
            is_complete = self._keep_outputs()
        self._keep_log()
        return is_complete

    def _keep_outputs(self) -> bool:
        spec, uploaded = self.spec, set[str]()
        try:
            files = find_outputs(self.layout.outputs, self.layout.work, spec.outputs)
        except (OutputsTooLarge, OSError) as error:
            self.tell(f"outputs not kept: {error}")
            return True  # to run the job again would only end here again
        while not self.stopped.is_set():
            try:
                upload_outputs(self.bucket.open(), spec.job_id, spec.fence, spec.node_rank, files, uploaded)
            except BUCKET_ERRORS as error:
                self.tell(f"outputs wait, bucket out of reach: {type(error).__name__}")
                self.stopped.wait(RETRY_SECONDS)
            else:
                return True
        return False

    def _keep_log(self) -> None:
        spec = self.spec
        try:
            upload_log(self.bucket.open(), spec.job_id, spec.fence, spec.node_rank, self.layout.logs)
        except BUCKET_ERRORS as error:
            self.tell(f"the log could not be uploaded: {type(error).__name__}")
