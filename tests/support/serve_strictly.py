"""`rocketbox serve` whose log has an error for each name that a template asks for and that does not exist."""

import logging
import sys

from tests.support import strict_templates

if __name__ == "__main__":
    from appliance.main import main

    strict_templates.watch(logging.getLogger("strict-templates").error)
    sys.exit(main())
