-- purpose: the row and its place. Every change of state goes through `place`, so that row and sets agree.
-- defines: SETS, row_key, read, place, broken, release_holder
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
local function read(id)
  local f = call('HMGET', row_key(id), 'state', 'attempts', 'holder', 'cancel', 'dedup', 'result_ttl_ms',
    'priority', 'failures', 'stalls', 'max_stalls', 'step')
  return {
    state = f[1], attempts = f[2], holder = f[3], cancel = f[4], dedup = f[5], result_ttl_ms = f[6],
    priority = tonumber(f[7]) or 0, failures = tonumber(f[8]) or 0, stalls = tonumber(f[9]) or 0,
    max_stalls = tonumber(f[10]) or 3, step = tonumber(f[11]),
  }
end
-- Whoever holds the job no longer does, not even as a late holder (section 1): every verb that ends a claim or changes a
-- job calls this, with the other fields it clears; only reap does not.
local function release_holder(id, ...)
  call('HDEL', row_key(id), 'holder', ...) --!write holder
end
-- In this order: should the server refuse one of the three (a right the user lacks), the job is still in a set, and the row
-- says in which it belongs.
local function place(id, row, state, score, ...)
  call('ZADD', SETS[state], score, id) --!write enter
  call('HSET', row_key(id), 'state', state, 'since', NOW, ...) --!write state
  call('ZREM', SETS[row.state], id) --!write leave
end
-- Whether an error is the row's own fault, which no other try will heal. Anything else is the server refusing us.
local function broken(id)
  local fine, problem = pcall(call, 'HGET', row_key(id), 'state')
  return not fine and string.find(problem.err or tostring(problem), 'WRONGTYPE', 1, true) ~= nil --!guard broken
end
