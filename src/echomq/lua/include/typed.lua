-- purpose: keys of the queue that are of another type than they should be, by hand or by a foreign program.
-- defines: OWN_TYPES, typed
local OWN_TYPES = {
  pending = 'zset', active = 'zset', schedule = 'zset', dead = 'zset', done = 'zset', waiting = 'zset', ring = 'list',
  closed = 'zset', lanes = 'hash', schedules = 'zset', wake = 'list', events = 'stream', counts = 'hash',
  outbox = 'zset', workers = 'zset', ['outbox:entries'] = 'hash',
}
-- Such a key stops whatever meets it, and what it should hold is told by the rows, or lost: it goes. Answers how many did.
local function typed(key, kind)
  if call('TYPE', key).ok == kind then return 0 end --!guard typed
  return call('DEL', key) --!write typed
end
