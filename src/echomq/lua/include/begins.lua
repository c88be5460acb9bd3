-- purpose: for a verb that may bring a queue its first lane or limit.
-- defines: nothing; sets MAY_BEGIN
MAY_BEGIN = true
