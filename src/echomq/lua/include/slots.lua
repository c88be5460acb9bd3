-- purpose: recurring schedules: a definition, and its next slot in the set by which they are found.
-- defines: SCHEDULES, schedule_key, stand
local SCHEDULES = P .. 'schedules'
local function schedule_key(name)
  return P .. 'schedule:' .. name
end
-- The schedule stands at a slot from now on: 0 when it fires no more. One that rests keeps its slot and is not found by it.
local function stand(name, slot, paused)
  local found = (paused or slot == 0) and '+inf' or slot
  if found ~= '+inf' then watch(SCHEDULES, slot) end
  call('ZADD', SCHEDULES, found, name) --!write slot-found
  call('HSET', schedule_key(name), 'slot', slot) --!write slot
end
