"""Files: written whole or not at all, and read through one guard, whoever made them."""

from hubbub.disk.read import (
    MOST_BYTES,
    json_value,
    npz_arrays,
    open_ordinary,
    read_bytes,
    read_text,
    toml_table,
)
from hubbub.disk.write import (
    PRIVATE,
    PUBLIC,
    appending,
    fresh,
    locked,
    make_private,
    sync_folder,
    write_all,
    write_bytes,
    write_text,
)
