-- purpose: for a verb that may bring a queue its first lane or limit, or is asked about lanes where there are none.
-- defines: nothing; sets MAY_BEGIN
MAY_BEGIN = true
