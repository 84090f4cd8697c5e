"""The supervisor: brokers run where they shall run."""
