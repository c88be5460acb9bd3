-- purpose: the row and its place. Every change of state goes through `place`, so that row and sets agree.
-- defines: leaving, leave, place
-- A call of many items takes their jobs out of `active` by one command after the last of them (`each`): true, or the list
-- of those that wait for that. Until then such a job is in one set too many. No item sees it: its row says already that
-- it is not active, and nothing in such a call makes a job active. Should the server refuse the command, `reap` drops
-- what does not belong there. False: each leaves at once.
local leaving = false
local function leave(id, state)
  if not leaving or state ~= 'active' then
    call('ZREM', SETS[state], id) --!write leave
  elseif leaving == true then
    leaving = { id }
  else
    leaving[#leaving + 1] = id
  end
end
-- In this order: should the server refuse one of the three (a right the user lacks), the job is still in a set, and the row
-- says in which it belongs.
local function place(id, row, state, score, ...)
  call('ZADD', SETS[state], score, id) --!write enter
  call('HSET', row_key(id), 'state', state, 'since', NOW, ...) --!write state
  leave(id, row.state) --!write place-leave
end
