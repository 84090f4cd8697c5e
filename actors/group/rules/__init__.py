"""Groups of both protocols and their offsets: state, requests, records. No I/O."""
