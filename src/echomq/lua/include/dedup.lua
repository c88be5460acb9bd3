-- purpose: who keeps a job with a dedup key out.
-- defines: held_by
-- Answers the job that holds the key, or nil: a key whose job is over counts as free, unless its window is not.
local function held_by(dedup, id)
  local key = P .. 'dedup:' .. dedup
  local holder = call('GET', key)
  if not holder or holder == id then return nil end --!guard held-own
  local state = call('HGET', row_key(holder), 'state')
  if call('PTTL', key) > 0 or state and state ~= 'dead' and state ~= 'done' then return holder end --!guard held-by
  return nil
end
