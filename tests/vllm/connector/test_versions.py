"""Which vLLM is taken: the installed one is, others are refused in one line with the range."""

import importlib
import re
import sys
import types
import unittest
from unittest import mock

from kvserve.vllm import versions


class Versions(unittest.TestCase):
    def test_installed_version_is_taken(self):
        versions.check_version(versions.installed_version())

    def test_suffixes_of_the_range_are_taken(self):
        for version in ("0.32.0", "0.32.0+cpu", "0.32.7", "0.32.1rc1", "0.32"):
            versions.check_version(version)

    def test_others_are_refused_by_name_and_range(self):
        for version in ("0.31.9", "0.33.0", "0.33.0.dev12+gabc", "1.0.0", "0.9.2", "dev", ""):
            with self.subTest(version=version), self.assertRaisesRegex(
                    versions.UnsupportedVersionError, "0.32.0 up to .*0.33.0.*" + re.escape(version)):
                versions.check_version(version)

    def test_installed_interface_is_taken(self):
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1

        versions.check_interface(KVConnectorBase_V1)

    def test_changed_interfaces_are_refused(self):
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1

        def fake(**changes):
            members = {name: getattr(KVConnectorBase_V1, name) for name in versions._SIGNATURES}
            members.update(changes)
            return types.SimpleNamespace(
                __name__="KVConnectorBase_V1",
                **{name: value for name, value in members.items() if value is not None})

        versions.check_interface(fake())
        with self.assertRaisesRegex(versions.UnsupportedVersionError,
                                    r"no get_transfer_results\(\)"):
            versions.check_interface(fake(get_transfer_results=None))
        with self.assertRaisesRegex(versions.UnsupportedVersionError,
                                    r"save_kv_layer takes \(layer_name, kv_layer\)"):
            versions.check_interface(fake(save_kv_layer=lambda self, layer_name, kv_layer: None))

    def test_other_engines_are_refused_when_the_connector_is_imported_in_one_line(self):
        """Not in the first request: a release outside of the range, or a changed interface."""
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1

        importlib.import_module("kvserve.vllm.connector")
        changes = (
            (mock.patch.object(versions, "installed_version", lambda: "0.33.0"),
             r"supports vLLM 0\.32\.0 up to .*0\.33\.0; this is vLLM 0\.33\.0"),
            (mock.patch.object(KVConnectorBase_V1, "request_finished", lambda self, request: None),
             r"request_finished takes \(request\).*supports vLLM 0\.32\.0 up to"))
        for change, words in changes:
            with self.subTest(words), mock.patch.dict(sys.modules), change:
                del sys.modules["kvserve.vllm.connector"]
                with self.assertRaisesRegex(versions.UnsupportedVersionError, words) as refused:
                    importlib.import_module("kvserve.vllm.connector")
                self.assertNotIn("\n", str(refused.exception))


if __name__ == "__main__":
    unittest.main()
