"""Contract suites: what hubbub asks of a kind of its own or of a package, tried in memory.

Each takes a kind and what it needs to be asked, and runs through the whole contract with a dummy of
everything else, in a second or so. What breaks a law is refused by an AssertionError whose sentence
says which one, and how to mend it. No test program is needed; in one, a suite is one test.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "asks": ["check_ask"],
        "options": ["check_option"],
        "renderers": ["check_renderer"],
        "sources": ["check_source"],
        "statistics": ["check_statistic"],
        "transports": ["check_transport"],
    },
)
