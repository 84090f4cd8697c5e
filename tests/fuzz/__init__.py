"""A fuzzer of meaning: well-formed requests with extreme values, at a broker that goes on serving.

Requests are made from the schemas in `wire/messages`, so a new API is fuzzed by itself.
`field_values.py` fills fields with what exists, `values.py` has the extremes that replace some of
them, `safety.py` keeps a request from legally harming other clients.
"""
