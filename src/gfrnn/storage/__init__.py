"""Files that last: writing them, tensors in them, the cache folder, and the names inside a run folder."""
