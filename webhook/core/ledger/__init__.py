"""The ledger of charges: sliding windows, live Pods and uid records of the services that share a tag."""
