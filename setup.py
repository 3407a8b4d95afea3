"""What pyproject.toml cannot say: conf/ lies beside src/, and in the wheel inside the package."""

import shutil

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithConf(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # which finds conf/ where it is
            shutil.copytree("conf", f"{self.build_lib}/aiayn/conf", dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithConf})
