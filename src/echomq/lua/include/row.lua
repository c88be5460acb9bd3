-- purpose: the names of sets and rows.
-- defines: ACTIVE, row_key, lane_set, lane_active, leaving
local ACTIVE = P .. 'active'
local function row_key(id)
  return P .. 'job:' .. id
end
-- The set of a lane's ready jobs, without the queue's part of the key; the jobs without a lane are the lane ''.
local function lane_set(lane)
  return lane == '' and 'pending' or 'lane:' .. lane .. ':pending'
end
local function lane_active(lane)
  return P .. 'lane:' .. lane .. ':active'
end
-- A call of many items takes their jobs out of `active` by one command after the last of them (`each`): true, or the list
-- of those that wait for that. Until then such a job is in one set too many. No item sees it: its row says already that
-- it is not active, and nothing in such a call makes a job active. Should the server refuse the command, `reap` drops
-- what does not belong there. False: each leaves at once.
local leaving = false
