-- purpose: for a verb that may bring a queue its first flow, or is asked about flows where there are none.
-- defines: nothing; sets MAY_FLOW
MAY_FLOW = true
