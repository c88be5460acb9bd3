-- purpose: the names of sets and rows.
-- defines: SETS, row_key
local SETS = {
  pending = P .. 'pending',
  active = P .. 'active',
  schedule = P .. 'schedule',
  dead = P .. 'dead',
  done = P .. 'done',
}
local function row_key(id)
  return P .. 'job:' .. id
end
